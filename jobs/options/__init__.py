"""How commands declare their options: as models, from which typer's parameters are made."""
