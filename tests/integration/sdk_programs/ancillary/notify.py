"""Fan a topic out to a queue with a filter, a web address and a file, and poll the queue."""

import json
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue

import boto3

posts: Queue[tuple[str, str]] = Queue()


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        posts.put((self.headers["x-amz-sns-message-type"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


server = HTTPServer(("127.0.0.1", 0), Hook)
threading.Thread(target=server.serve_forever, daemon=True).start()
hook = f"http://127.0.0.1:{server.server_port}/sns"

sns, sqs = boto3.client("sns"), boto3.client("sqs")
topic = sns.create_topic(Name="inference-results", Tags=[{"Key": "team", "Value": "ml"}])
topic_arn = topic["TopicArn"]
queue_url = sqs.create_queue(QueueName="inference-results")["QueueUrl"]
queue_arn = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])["Attributes"][
    "QueueArn"
]

try:
    sns.subscribe(
        TopicArn=topic_arn,
        Protocol="sqs",
        Endpoint=queue_arn,
        Attributes={"FilterPolicy": json.dumps({"status": ["Completed"]})},
        ReturnSubscriptionArn=True,
    )
    sns.subscribe(TopicArn=topic_arn, Protocol="file", Endpoint="inference-results.jsonl")
    pending = sns.subscribe(TopicArn=topic_arn, Protocol="http", Endpoint=hook)
    assert pending["SubscriptionArn"] == "pending confirmation"
    kind, body = posts.get(timeout=30)
    assert kind == "SubscriptionConfirmation", kind
    # Confirm as a web server does, by a visit of the address without credentials.
    with urllib.request.urlopen(json.loads(body)["SubscribeURL"], timeout=30) as answer:
        assert b"ConfirmSubscriptionResult" in answer.read()
    attributes = sns.get_topic_attributes(TopicArn=topic_arn)["Attributes"]
    assert attributes["SubscriptionsConfirmed"] == "3", attributes

    # A long poll that begins before the message exists returns as soon as it arrives.
    def later() -> None:
        time.sleep(1.0)
        for status in ("Failed", "Completed"):
            sns.publish(
                TopicArn=topic_arn,
                Subject=status,
                Message=json.dumps({"invocationStatus": status}),
                MessageAttributes={"status": {"DataType": "String", "StringValue": status}},
            )

    threading.Thread(target=later).start()
    received = sqs.receive_message(QueueUrl=queue_url, WaitTimeSeconds=20)["Messages"]
    (message,) = received
    assert json.loads(message["Body"])["Subject"] == "Completed"
    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=queue_url, WaitTimeSeconds=1)
    subjects = {json.loads(posts.get(timeout=30)[1])["Subject"] for _ in range(2)}
    assert subjects == {"Failed", "Completed"}, subjects
finally:
    sns.delete_topic(TopicArn=topic_arn)
    sqs.delete_queue(QueueUrl=queue_url)
try:
    sqs.get_queue_url(QueueName="inference-results")
except sqs.exceptions.QueueDoesNotExist:
    print("a topic reached a queue, a web address and a file")
else:
    raise AssertionError("the queue is still there")
