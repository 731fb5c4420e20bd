"""The operations of sqs that are served."""

from collections.abc import Mapping

from hostelry.api.context import Operation
from hostelry.api.sqs import batch, message, queue, queue_attributes

OPERATIONS: Mapping[str, Operation] = {
    "CreateQueue": queue.create_queue,
    "GetQueueUrl": queue.get_queue_url,
    "ListQueues": queue.list_queues,
    "ListDeadLetterSourceQueues": queue.list_dead_letter_source_queues,
    "GetQueueAttributes": queue_attributes.get_queue_attributes,
    "SetQueueAttributes": queue.set_queue_attributes,
    "PurgeQueue": queue.purge_queue,
    "DeleteQueue": queue.delete_queue,
    "ListQueueTags": queue.list_queue_tags,
    "TagQueue": queue.tag_queue,
    "UntagQueue": queue.untag_queue,
    "SendMessage": message.send_message,
    "ReceiveMessage": message.receive_message,
    "DeleteMessage": message.delete_message,
    "ChangeMessageVisibility": message.change_message_visibility,
    "SendMessageBatch": batch.send_message_batch,
    "DeleteMessageBatch": batch.delete_message_batch,
    "ChangeMessageVisibilityBatch": batch.change_message_visibility_batch,
}
