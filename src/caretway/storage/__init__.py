"""Files: one opener of SQLite databases (`database`), one writer of private files (`private_file`), one editor of TOML
text (`toml_text`).
"""
