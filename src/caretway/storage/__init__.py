"""Files of the data directory: one opener of SQLite databases (`database`), one writer of private files
(`private_file`).
"""
