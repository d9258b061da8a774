"""What the gateway says about its own work. No prompt, no answer and no secret passes here."""
