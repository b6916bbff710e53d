"""What Odin is doing, in words that all front ends share."""

from collections.abc import Mapping

ACTIVITY_WORDS: Mapping[str, str] = {
    "connecting": "connecting to the model",
    "waiting_headers": "waiting for the model",
    "waiting_token": "waiting for the model",
    "streaming": "the model is answering",
    "compacting": "summarising the conversation",
    "retrying": "waiting to try again",
    "retrying_key": "trying another key",
    "cooling": "waiting, as the model's server asks",
    "verifying": "checking the work",
}
TIMED_ACTIVITIES = ("retrying", "cooling")
"""Activities whose end is known: what is left of them is counted down."""
