"""`indexmill bench assign`: assignment policies and leader indexes compared (eCP study)."""
