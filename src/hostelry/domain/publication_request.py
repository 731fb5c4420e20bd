"""Request of another process to control: publish a message to a topic."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationRequest:
    """A message for a topic; `message_id` is the same whenever it is sent again."""

    topic_arn: str
    subject: str | None = None
    message: str
    message_id: str
