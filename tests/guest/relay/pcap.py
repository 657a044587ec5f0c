#!/usr/bin/env python3
"""Capture files of the relay tests: pcap.py write DIRECTORY, pcap.py compare DIRECTORY."""
import struct
import sys

HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
SIZES = [14, 20, 59, 60, 61, 64, 100, 127, 128, 129, 500, 1000, 1513, 1514]


def frame(number):
    """IPv4, IPv6, VLAN and other frames of 50 flows; the number is at the end."""
    flow, size = number % 50, SIZES[number % len(SIZES)]
    macs = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, flow])
    kind = flow % 4
    if kind == 0:
        body = b"\x08\x00" + bytes([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, flow, 10, 0, 0, 9, 4, 0, 4, 1])
    elif kind == 1:
        body = b"\x86\xdd" + bytes([0x60, 0, 0, 0, 0, 8, 17, 64]) + bytes([0xFD] * 15 + [flow] + [0xFE] * 16)
    elif kind == 2:
        body = b"\x81\x00" + bytes([0, flow]) + b"\x08\x06"
    else:
        body = b"\x88\xcc"
    data = (macs + body)[:size].ljust(size, bytes([number & 0xFF]))
    return data if size < 60 else data[:-4] + struct.pack(">I", number)


def write(path, frames):
    with open(path, "wb") as file:
        file.write(HEADER)
        for data in frames:
            file.write(struct.pack("<IIII", 0, 0, len(data), len(data)) + data)


def read(path):
    with open(path, "rb") as file:
        file.read(24)
        while header := file.read(16):
            yield file.read(struct.unpack("<IIII", header)[2])


def by_flow(frames):
    flows = {}
    for data in frames:
        flows.setdefault(data[6:12], []).append(data)
    return flows


command, directory = sys.argv[1:]
if command == "write":
    write(f"{directory}/in.pcap", (frame(n) for n in range(20_000)))
    write(f"{directory}/none.pcap", [])
else:
    want, got = by_flow(read(f"{directory}/in.pcap")), by_flow(read(f"{directory}/out.pcap"))
    for flow in want:
        if want[flow] != got.get(flow):
            sys.exit(f"flow {flow.hex()}: {len(got.get(flow, []))} frames came of {len(want[flow])}, or in another order")
    if set(got) - set(want):
        sys.exit("frames came that nobody sent")
    print(f"# {sum(map(len, got.values()))} frames of {len(got)} flows are equal and in order")
