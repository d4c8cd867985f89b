"""The user's own agent in the policy's part of an episode: its gateway, its dialogues, its process."""
