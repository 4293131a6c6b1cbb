"""Models in their own frameworks, one file a framework: what imported models are compared with."""
