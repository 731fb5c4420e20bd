"""A dashboard of an application's metrics, and the queries behind its widgets."""

import json
import time

import boto3

session = boto3.session.Session()
cloudwatch = session.client("cloudwatch")
region, name, namespace = session.region_name, "checkout-service", "Checkout"
query = f"SELECT AVG(Latency) FROM SCHEMA({namespace}, Stage) GROUP BY Stage ORDER BY MAX() DESC"

for stage, latency in (("beta", 90.0), ("prod", 30.0)):
    dimensions = [{"Name": "Stage", "Value": stage}]
    data = [{"MetricName": "Latency", "Dimensions": dimensions, "Value": latency}]
    cloudwatch.put_metric_data(Namespace=namespace, MetricData=data)

widgets = [
    {"type": "text", "width": 24, "height": 1, "properties": {"markdown": "# Checkout"}},
    {
        "type": "metric",
        "width": 12,
        "height": 6,
        "properties": {
            "metrics": [
                [namespace, "Latency", "Stage", "prod", {"stat": "p99"}],
                [{"expression": query, "id": "q1"}],
            ],
            "region": region,
            "title": "Latency",
        },
    },
]
body = json.dumps({"widgets": widgets})
put = cloudwatch.put_dashboard(DashboardName=name, DashboardBody=body)
assert not put["DashboardValidationMessages"], put
assert json.loads(cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])["widgets"]
pages = cloudwatch.get_paginator("list_dashboards").paginate(DashboardNamePrefix="checkout")
assert [it["DashboardName"] for page in pages for it in page["DashboardEntries"]] == [name]

reason = ""
try:
    cloudwatch.put_dashboard(DashboardName=name, DashboardBody='{"widgets": [{"type": "text"}]}')
except cloudwatch.exceptions.DashboardInvalidInputError as error:
    reason = str(error)
assert "there are 1 validation errors" in reason, reason

found = []
for _ in range(20):
    end = int(time.time()) + 60
    asked = [{"Id": "q1", "Expression": query, "Period": 60}]
    answer = cloudwatch.get_metric_data(MetricDataQueries=asked, StartTime=end - 3600, EndTime=end)
    found = [(it["Label"], it["Values"][0]) for it in answer["MetricDataResults"] if it["Values"]]
    if len(found) == 2:
        break
    time.sleep(0.5)
assert found == [("beta", 90.0), ("prod", 30.0)], found

cloudwatch.delete_dashboards(DashboardNames=[name])
code = ""
try:
    cloudwatch.get_dashboard(DashboardName=name)
except cloudwatch.exceptions.ClientError as error:
    code = error.response["Error"]["Code"]
assert code == "ResourceNotFound", code
print(f"dashboard {name}: slowest stage {found[0][0]}")
