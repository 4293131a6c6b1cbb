"""Reports as one HTML file: what they hold (`document`), where that comes from, and the shell around it (`shell`)."""
