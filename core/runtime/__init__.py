"""What runs at each call: entries and their guards, what a miss comes to, stances, frames from disk."""
