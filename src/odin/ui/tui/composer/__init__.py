"""The prompt composer: text area, completion popup, prompt history and the queue panel."""
