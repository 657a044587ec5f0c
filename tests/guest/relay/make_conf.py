#!/usr/bin/env python3
"""Writes the two configurations of a relay test: make_conf.py DIRECTORY KIND [KEY=VALUE...]

KIND: null (frames of zeros from net_null) or flows (source and sink).
Keys: qp, workers, count, flows, sizes, protocols, pmtu, mtu, message.
"""
import sys

directory, kind, *pairs = sys.argv[1:]
keys = dict(qp="rc", workers="2", count="300000", flows="20000", sizes="60", protocols='["udp4"]', pmtu="4096",
            mtu="1500", message="4096")
keys.update(pair.split("=", 1) for pair in pairs)

COMMON = """poll = "adaptive"
[eal]
hugepages = "no-huge"
lcores = "0@0,1@0,2@1"
[stats]
format = "json"
[drain]
timeout_ms = 20000
[fabric]
transport = "verbs"
qp = "{qp}"
{where}
key = "a key that only this test knows, 32 bytes"
allow = ["198.18.0.0/24"]
keepalive_ms = 1000
dead_after_ms = 6000
pmtu = {pmtu}
[fabric.verbs]
device = "{device}"
[service.relay]
message_bytes = {message}
"""

RELAY = """[[node]]
name = "{name}"
service = "relay"
ports = ["{port}"]
workers = {workers}
"""

PORT = """[[port]]
name = "{name}"
device = "{device}"
queues = {workers}
mtu = {mtu}
"""

LINK = """[[link]]
name = "{name}"
ports = ["{near}", "{far}"]
queues = {workers}
mtu = {mtu}
"""

SOURCE = """[[node]]
name = "source"
service = "source"
ports = ["{port}"]
workers = {workers}
[node.source]
flows = {flows}
count = {count}
sizes = {sizes}
protocols = {protocols}
"""

SINK = """[[node]]
name = "sink"
service = "sink"
ports = ["{port}"]
workers = {workers}
[node.sink]
flows = {flows}
"""


def end(name, where, device, parts):
    text = COMMON.format(where=where, device=device, **keys)
    text += "".join(part.format(**{**keys, **fields}) for part, fields in parts)
    with open(f"{directory}/{name}.toml", "w") as file:
        file.write(text)


if kind == "null":
    a = [(PORT, dict(name="p", device="net_null0,size=64")), (RELAY, dict(name="a", port="p"))]
    b = [(PORT, dict(name="p", device="net_null0,no-rx=1")), (RELAY, dict(name="b", port="p"))]
else:
    a = [(LINK, dict(name="in", near="out0", far="p")), (SOURCE, dict(port="out0")), (RELAY, dict(name="a", port="p"))]
    b = [(LINK, dict(name="to", near="p", far="in0")), (RELAY, dict(name="b", port="p")), (SINK, dict(port="in0"))]
end("a", 'listen = "198.18.0.1:7471"', "rxe0", a)
end("b", 'connect = "198.18.0.1:7471"', "rxe1", b)
