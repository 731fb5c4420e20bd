"""The operations of sns that are served."""

from collections.abc import Mapping

from hostelry.api.context import Operation
from hostelry.api.sns import publish, subscription, subscription_attributes, tag, topic

OPERATIONS: Mapping[str, Operation] = {
    "CreateTopic": topic.create_topic,
    "DeleteTopic": topic.delete_topic,
    "ListTopics": topic.list_topics,
    "GetTopicAttributes": topic.get_topic_attributes,
    "SetTopicAttributes": topic.set_topic_attributes,
    "Subscribe": subscription.subscribe,
    "ConfirmSubscription": subscription.confirm_subscription,
    "Unsubscribe": subscription.unsubscribe,
    "ListSubscriptions": subscription.list_subscriptions,
    "ListSubscriptionsByTopic": subscription.list_subscriptions_by_topic,
    "GetSubscriptionAttributes": subscription_attributes.get_subscription_attributes,
    "SetSubscriptionAttributes": subscription_attributes.set_subscription_attributes,
    "Publish": publish.publish,
    "PublishBatch": publish.publish_batch,
    "TagResource": tag.tag_resource,
    "UntagResource": tag.untag_resource,
    "ListTagsForResource": tag.list_tags_for_resource,
}
