"""Writers of tasks that ask a language model for the words of a sampled path, or for tasks that it finds itself."""
