#!/usr/bin/env python3
"""Checks the licence and the source of every dependency against deny.toml.

Reads the output of `cargo metadata --format-version 1` on standard input and takes the path of deny.toml.
Prints a line per offence and a summary; ends with 1 if there was an offence. It covers what `cargo deny
check licenses sources` covers for this project, without the minutes that building that tool takes.
"""

import json
import re
import sys
import tomllib

# How cargo names the registry it uses by default, whichever way it reaches it.
DEFAULT_REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


class Expression:
    """An SPDX expression, evaluated against the set of licences that are allowed."""

    def __init__(self, text, allowed):
        # Before SPDX, "A/B" meant "A OR B", and some crates still say so.
        self.words = re.findall(r"[()]|[^\s()]+", text.replace("/", " OR "))
        self.allowed = allowed

    def holds(self):
        result = self.either()
        if self.words:
            raise ValueError(f"cannot read from '{self.words[0]}' on")
        return result

    def either(self):
        result = self.both()
        while self.take("OR"):
            result = self.both() or result
        return result

    def both(self):
        result = self.one()
        while self.take("AND"):
            result = self.one() and result
        return result

    def one(self):
        if self.take("("):
            result = self.either()
            if not self.take(")"):
                raise ValueError("a bracket is not closed")
            return result
        if not self.words:
            raise ValueError("it ends too early")
        name = self.words.pop(0)
        if self.take("WITH") and self.words:
            name += " WITH " + self.words.pop(0)
        return name in self.allowed

    def take(self, word):
        if self.words and self.words[0] == word:
            self.words.pop(0)
            return True
        return False


def licence_offence(package, allowed, clarified):
    """Says what is wrong with the licence of a package, or None."""
    name, version = package["name"], package["version"]
    text = clarified.get(f"{name}@{version}") or clarified.get(name) or package["license"]
    if not text:
        return "states no licence by name; read it, then add a [[licenses.clarify]] entry"
    try:
        if Expression(text, allowed).holds():
            return None
    except ValueError as error:
        return f"has a licence that cannot be read, '{text}': {error}"
    return f"is under '{text}', which [licenses] allow does not admit"


def source_offence(package, registries):
    """Says what is wrong with where a package comes from, or None."""
    source = package["source"]
    if source is None or source in registries:  # None: a member of this workspace, or a path
        return None
    return f"comes from '{source}', which [sources] does not admit"


def main():
    with open(sys.argv[1], "rb") as file:
        rules = tomllib.load(file)
    allowed = set(rules["licenses"]["allow"])
    clarified = {entry["crate"]: entry["expression"] for entry in rules["licenses"].get("clarify", [])}
    registries = [DEFAULT_REGISTRY, *rules["sources"].get("allow-registry", [])]
    packages = json.load(sys.stdin)["packages"]
    offences = 0
    for package in packages:
        for offence in (licence_offence(package, allowed, clarified), source_offence(package, registries)):
            if offence:
                print(f"{package['name']} {package['version']} {offence}")
                offences += 1
    print(f"{len(packages)} packages looked at, {offences} offences against deny.toml")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
