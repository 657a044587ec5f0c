#!/usr/bin/env python3
"""Gives the test programs that cargo built names without a hash: `link_tests.py DIRECTORY`.

Reads the JSON messages of `cargo test --no-run` on standard input and makes links DIRECTORY/PACKAGE/TARGET; the
unit tests of a library are PACKAGE/lib.
"""

import json
import os
import sys


def package_name(package_id):
    """The name in `path+file:///dir/name#0.1.0` or `path+file:///dir#name@0.1.0`."""
    place, _, fragment = package_id.rpartition("#")
    return fragment.split("@")[0] if "@" in fragment else os.path.basename(place)


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if not message.get("executable") or not message["profile"]["test"]:
            continue
        target = message["target"]
        name = "lib" if "lib" in target["kind"] else target["name"]
        link = os.path.join(sys.argv[1], package_name(message["package_id"]), name)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if os.path.lexists(link):
            os.remove(link)
        os.symlink(message["executable"], link)


if __name__ == "__main__":
    main()
