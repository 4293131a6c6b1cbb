"""References for imported models: the same models in their own frameworks, one file per framework."""
