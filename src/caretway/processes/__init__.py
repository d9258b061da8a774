"""Child processes: started without a fork, ended with their whole group, read within bounds. Open to every room.

What is run, and what its output means, is not known here.
"""
