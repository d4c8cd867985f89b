"""An agent of the user's as the policy's part of an episode: its gateway, its dialogues, its process."""
