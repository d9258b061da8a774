"""Unit tests of the sdk backend: values only, no package of Cursor's needed."""
