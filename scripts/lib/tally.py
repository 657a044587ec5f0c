#!/usr/bin/env python3
"""Counts test results: `tally.py FORMAT FILE`, with FORMAT one of junit, libtest and tap.

Prints `PASSED FAILED SKIPPED` on the first line, then a line per skipped test with its reason. A test of the
Rust suites that could not do its work where it ran says SKIPPED in its output and counts as skipped.
"""

import re
import sys
import xml.etree.ElementTree as xml

SAID_SKIPPED = re.compile(r".*\bSKIPPED\b.*")


def junit(path):
    """The report of cargo-nextest. Ignored tests are not in it."""
    passed, failed, skips = 0, 0, []
    for case in xml.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')} {case.get('name')}"
        output = "\n".join(case.findtext(tag) or "" for tag in ("system-out", "system-err"))
        said = SAID_SKIPPED.search(output)
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif said:
            skips.append(f"{name}: {said.group().strip()}")
        else:
            passed += 1
    return passed, failed, skips


def libtest(path):
    """The output of `cargo test`, with `--show-output` so that it holds what passed tests said."""
    passed, failed, skips = 0, 0, []
    test = None
    for line in open(path, encoding="utf-8", errors="replace"):
        if result := re.match(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", line):
            passed += int(result[1])
            failed += int(result[2])
            skips += ["a test marked #[ignore]"] * int(result[3])
            test = None
        elif heading := re.match(r"---- (.*) stdout ----$", line):
            test = heading[1]
        elif test and SAID_SKIPPED.match(line):
            skips.append(f"{test}: {line.strip()}")
            passed -= 1
            test = None
    return passed, failed, skips


def tap(path):
    """Lines `ok` and `not ok` of test scripts, among whatever else they print."""
    passed, failed, skips = 0, 0, []
    for line in open(path, encoding="utf-8", errors="replace"):
        if re.match(r"not ok\b", line):
            failed += 1
        elif skip := re.match(r"(?:ok\b|1\.\.0).*# *SKIP\S*(.*)", line, re.IGNORECASE):
            skips.append(f"{line.split('#')[0].strip()}:{skip[1]}")
        elif re.match(r"ok\b", line):
            passed += 1
    return passed, failed, skips


def main():
    passed, failed, skips = {"junit": junit, "libtest": libtest, "tap": tap}[sys.argv[1]](sys.argv[2])
    print(passed, failed, len(skips))
    for skip in skips:
        print(skip)


if __name__ == "__main__":
    main()
