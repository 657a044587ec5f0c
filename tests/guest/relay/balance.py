#!/usr/bin/env python3
"""Holds the final reports of both ends against each other: balance.py A.out B.out [CHECK...]

Always: every frame that entered A was sent or dropped by name; every frame that A sent was received by B or counted as
lost; every frame that B received went to its port or was dropped by name.
Checks: lossless, verified=N (the sink saw N frames in order), at_least=N (frames entered A).
"""
import json
import sys


def last(path):
    with open(path) as file:
        lines = [line for line in file if line.startswith("{")]
    if not lines:
        sys.exit(f"{path}: no report")
    return json.loads(lines[-1])


def total(report, service):
    sums, drops = {}, {}
    for worker in report["workers"]:
        if worker["service"] == service:
            for name, value in worker["counts"].items():
                sums[name] = sums.get(name, 0) + value
            for name, value in worker["drops"].items():
                drops[name] = drops.get(name, 0) + value
    return sums, drops


a_path, b_path, *checks = sys.argv[1:]
a, b = last(a_path), last(b_path)
(sent, sent_drops), (got, got_drops) = total(a, "relay"), total(b, "relay")
sink, _ = total(b, "sink")
problems = []


def equal(what, left, right):
    if left != right:
        problems.append(f"{what}: {left} is not {right}")


# What A dropped of frames that came from B is none: these tests send one way.
lost = got_drops.pop("lost_in_transit", 0)
equal("frames in = sent + dropped", sent["rx_frames"], sent["frames_sent"] + sum(sent_drops.values()))
equal("sent by A = received by B + lost", sent["frames_sent"], got["frames_received"] + lost)
equal("received by B = to its port + dropped", got["frames_received"], got["tx_frames"] + sum(got_drops.values()))
for check in checks:
    name, _, value = check.partition("=")
    if name == "lossless":
        equal("drops and losses", (sent_drops, got_drops, lost), ({}, {}, 0))
    elif name == "verified":
        equal("frames verified by the sink", sink["frames_verified"], int(value))
        bad = {n: sink[n] for n in ("missing", "out_of_order", "duplicates", "corrupt", "foreign") if sink[n]}
        equal("what is wrong with them", bad, {})
    elif name == "sink_agrees":
        seen = sink["frames_verified"]
        equal("frames seen by the sink", seen, got["tx_frames"])
        equal("disorder", (sink["out_of_order"], sink["corrupt"]), (0, 0))
    elif name == "at_least" and sent["rx_frames"] < int(value):
        problems.append(f"only {sent['rx_frames']} frames entered, {value} were wanted")
print(f"# in {sent['rx_frames']}, sent {sent['frames_sent']}, received {got['frames_received']}, lost {lost}, "
      f"dropped {sent_drops} and {got_drops}, messages {sent['messages_sent']}")
if problems:
    sys.exit("; ".join(problems))
