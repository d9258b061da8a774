"""The gateway as a service of the user: unit files for systemd and launchd, and readiness. Values in, text out."""
