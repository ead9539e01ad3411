"""What happens inside the user's process while a model is called; light, and never in the way of the call."""
