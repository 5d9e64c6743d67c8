#!/usr/bin/env python3
"""vectors.py SPEC-FOLDER STEP: runs spec/vectors through ring.c, one step at a time (step.c)."""
import json
import subprocess
import sys

ARGUMENTS = {
    "sender_room": ["wanted_bytes"],
    "sender_fill": ["skip_bytes", "data_hex"],
    "sender_publish": ["len_bytes", "own_tcp_position"],
    "sender_ask_wake": ["room_bytes"],
    "receiver_look": ["own_tcp_position"],
    "receiver_peek": ["skip_bytes", "len_bytes"],
    "receiver_consume": ["len_bytes"],
    "receiver_took_tcp": ["len_bytes"],
    "receiver_offer": ["class"],
    "hostile": ["set_word", "set_tcp_position", "set_head"],
}


def number(value):
    return int(value, 16) if value.startswith("0x") else value


class Steps:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def step(self, op, *values):
        line = " ".join([op, *(str(v if isinstance(v, int) else number(v)) for v in values)])
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        result, *numbers = self.process.stdout.readline().split()
        return "" if result == "-" else result, *map(int, numbers)


def run(steps, file, bell):
    with open(file) as text:
        cases = json.load(text)["cases"]
    count = 0
    for case in cases:
        steps.step("new", case["max_class"], case["start"], int(bell))
        for index, step in enumerate(case["steps"]):
            given = [step.get(name, 0) for name in ARGUMENTS.get(step["op"], [])]
            result, value, word, position, head = steps.step(step["op"], *given)
            got = (result, value if "value" in step else None, word, head)
            wanted = (step.get("result", ""), step.get("value"), number(step["word"]), number(step["head"]))
            if not bell:
                got, wanted = (*got, position), (*wanted, number(step["tcp_position"]))
            if got != wanted:
                sys.exit(f"{case['name']}: step {index}: {step}\n  gave {got}\n  not  {wanted}")
            count += 1
    print(f"{file}: {len(cases)} cases, {count} steps")


def main():
    folder, program = sys.argv[1:]
    steps = Steps(program)
    run(steps, f"{folder}/vectors/direction.json", bell=False)
    run(steps, f"{folder}/vectors/bell.json", bell=True)


if __name__ == "__main__":
    main()
