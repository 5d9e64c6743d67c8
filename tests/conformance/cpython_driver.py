"""Runs one module of CPython's own tests and writes down each result as it comes.

    cpython_driver.py OUT MODULE [--only ID...] [--skip ID...] [--parts PART...]
                      [--leave-out PART...]

OUT gets two lines for each test, "start ID" and "OUTCOME ID", so that of a process that hangs or
dies it is known where. Settings are regrtest's without network and large resources.
"""

import argparse
import faulthandler
import importlib
import sys
import unittest

# More than any of these tests needs on a busy machine; what takes longer hangs.
TEST_TIMEOUT_S = 150


class Result(unittest.TestResult):
    """One outcome for each test; sub-tests and class set-ups count for whom they belong to."""

    def __init__(self, out):
        super().__init__()
        self.out = out
        self.outcome = None

    def say(self, word, test):
        print(word, test.id().replace(" ", "_"), file=self.out, flush=True)

    def show(self, test, error):
        print(f"==== {test.id()}\n{self._exc_info_to_string(error, test)}", flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.outcome = "pass"
        self.say("start", test)
        faulthandler.dump_traceback_later(TEST_TIMEOUT_S, exit=True)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)
        self.say(self.outcome, test)
        self.outcome = None

    def bad(self, word, test, error):
        if error is not None:
            self.show(test, error)
        if self.outcome is None:  # a class or module that could not be set up
            self.say(word, test)
        elif self.outcome != "error":
            self.outcome = word

    def addError(self, test, error):
        self.bad("error", test, error)

    def addFailure(self, test, error):
        self.bad("fail", test, error)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            failed = issubclass(error[0], test.failureException)
            self.bad("fail" if failed else "error", test, error)

    def addSkip(self, test, reason):
        if self.outcome in (None, "pass"):
            self.bad("skip", test, None)

    def addExpectedFailure(self, test, error):
        pass

    def addUnexpectedSuccess(self, test):
        self.bad("fail", test, None)


def chosen(suite, is_wanted):
    """The suite without the tests that are not wanted; its structure stays."""
    kept = []
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            kept.append(chosen(test, is_wanted))
        elif is_wanted(test.id().replace(" ", "_")):
            kept.append(test)
    return type(suite)(kept)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("module")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--skip", nargs="*", default=[])
    parser.add_argument("--parts", nargs="*", default=[], help="parts of names")
    parser.add_argument("--leave-out", nargs="*", default=[], help="parts of names")
    options = parser.parse_args()
    from test import support

    support.use_resources = ["subprocess", "cpu", "decimal", "walltime"]
    if options.module == "test.test_socketserver":
        # It asks for the network and uses only the loopback.
        support.use_resources.append("network")
    faulthandler.enable(all_threads=True)
    out = open(options.out, "a")
    try:
        module = importlib.import_module(options.module)
    except unittest.SkipTest as reason:
        print(f"{options.module}: {reason}")
        print("skip", options.module, file=out)
        return
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)

    def is_wanted(name):
        if name in options.skip or any(part in name for part in options.leave_out):
            return False
        if options.parts and not any(part in name for part in options.parts):
            return False
        return not options.only or name in options.only

    suite = chosen(suite, is_wanted)
    suite.run(Result(out))
    support.reap_children()
    print("end", options.module, file=out)


if __name__ == "__main__":
    sys.exit(main())
