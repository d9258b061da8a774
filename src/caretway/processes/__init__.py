"""Child processes: started without a fork, ended with their whole group, read within bounds. Any package may use it.

Independent of which programs run and what their output means.
"""
