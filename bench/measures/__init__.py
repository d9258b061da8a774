"""One file for each thing that is measured. A measure takes house and sizes, and fills the ledger."""
