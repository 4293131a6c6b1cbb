"""Reports as one HTML file: their data (`document`), the modules that fill it, and the page itself (`shell`)."""
