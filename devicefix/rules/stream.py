from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.streams import Streams

_LEFT = "because devicefix cannot change all of its uses"


class CudaStream(Rule):
    """
    ## What it does
    Finds CUDA streams and events.

    ## Why it matters
    Without CUDA, creating a stream or an event raises an error such as "torch.cuda.Stream requires CUDA support".

    ## Example
    ```python
    self.stream = torch.cuda.Stream()
    with torch.cuda.stream(self.stream):
        self.batch = self.batch.cuda(non_blocking=True)
    torch.cuda.current_stream().wait_stream(self.stream)
    ```

    ## Use instead
    ```python
    self.stream = torch.cuda.Stream() if torch.cuda.is_available() else None
    with torch.cuda.stream(self.stream):
        self.batch = self.batch.to(device, non_blocking=True)
    if torch.cuda.is_available():
        torch.cuda.current_stream().wait_stream(self.stream)
    ```

    ## Fix safety
    The fix is usually safe: entering `torch.cuda.stream(None)` has no effect, and without a GPU, there is nothing to
    synchronize. On a CPU, an event's elapsed time is `nan` in the fixed code, or 0.0, for example if the program
    compares the time or converts it to an int. The fix is unsafe if it skips calls that may have side effects.

    The fix changes all uses of related streams and events together. There is no fix if some uses are unknown, for
    example because the stream is passed to a function, is stored in a list or shares its name with another value. There
    is also no fix if the program both compares a time and divides by it.
    """

    only_cuda = True
    code = "DF404"
    name = "cuda-stream"
    summary = "A CUDA stream or event is created or used"
    words = (b"cuda",)
    common_words = (b"stream", b"event", b".record", b"elapsed", b"synchronize", b".query", b".wait")
    INVALID = (
        Example(
            "a stream in an attribute",
            before="""
                import torch


                class Prefetcher:
                    def __init__(self):
                        self.stream = torch.cuda.Stream()

                    def next(self):
                        torch.cuda.current_stream().wait_stream(self.stream)
                        with torch.cuda.stream(self.stream):
                            pass
                        self.x.record_stream(torch.cuda.current_stream())
                        self.stream.synchronize()
            """,
            after="""
                import torch


                class Prefetcher:
                    def __init__(self):
                        self.stream = torch.cuda.Stream() if torch.cuda.is_available() else None

                    def next(self):
                        if torch.cuda.is_available():
                            torch.cuda.current_stream().wait_stream(self.stream)
                        with torch.cuda.stream(self.stream):
                            pass
                        if torch.cuda.is_available():
                            self.x.record_stream(torch.cuda.current_stream())
                            self.stream.synchronize()
            """,
        ),
        Example(
            "two events that measure time",
            before="""
                import torch

                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                run()
                end.record()
                ms = start.elapsed_time(end)
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    start.record()
                run()
                if torch.cuda.is_available():
                    end.record()
                ms = start.elapsed_time(end) if torch.cuda.is_available() else float("nan")
            """,
        ),
        Example(
            "a stream that is entered where it is made",
            before="""
                import torch

                with torch.cuda.stream(torch.cuda.Stream()):
                    run()
            """,
            after="""
                import torch

                with torch.cuda.stream(torch.cuda.Stream() if torch.cuda.is_available() else None):
                    run()
            """,
        ),
        Example(
            "streams that are compared, of which there is none on a CPU",
            before="""
                import torch

                side = torch.cuda.Stream()
                if torch.cuda.current_stream(x.device) != torch.cuda.default_stream(x.device):
                    warn("not the default stream")
                if ready and torch.cuda.current_stream() != side:
                    warn("not the stream of the copies")
                while ready and torch.cuda.current_stream() == torch.cuda.default_stream():
                    ready = step()
                usual = torch.cuda.default_stream() == torch.cuda.current_stream()
                unusual = not torch.cuda.default_stream() == torch.cuda.current_stream()
            """,
            after="""
                import torch

                side = torch.cuda.Stream() if torch.cuda.is_available() else None
                if torch.cuda.is_available() and torch.cuda.current_stream(x.device) != torch.cuda.default_stream(x.device):
                    warn("not the default stream")
                if ready and torch.cuda.is_available() and torch.cuda.current_stream() != side:
                    warn("not the stream of the copies")
                while ready and (not torch.cuda.is_available() or torch.cuda.current_stream() == torch.cuda.default_stream()):
                    ready = step()
                usual = not torch.cuda.is_available() or torch.cuda.default_stream() == torch.cuda.current_stream()
                unusual = not (not torch.cuda.is_available() or torch.cuda.default_stream() == torch.cuda.current_stream())
            """,
        ),
        Example(
            "a comparison whose arguments may do more than return a value",
            before="""
                import torch

                if torch.cuda.current_stream(advance()) != torch.cuda.default_stream():
                    warn("not the default stream")
            """,
            after="""
                import torch

                if torch.cuda.is_available() and torch.cuda.current_stream(advance()) != torch.cuda.default_stream():
                    warn("not the default stream")
            """,
            unsafe=True,
        ),
        Example(
            "a list of streams",
            before="""
                import torch

                streams = [torch.cuda.Stream() for _ in range(2)]
            """,
        ),
        Example(
            "a stream that is passed to a function",
            before="""
                import torch

                side = torch.cuda.Stream()
                launch(side)
            """,
        ),
        Example(
            "a current stream that is recorded",
            before="""
                import torch

                s = torch.cuda.current_stream()
                out.record_stream(s); done = True
            """,
            after="""
                import torch

                s = torch.cuda.current_stream() if torch.cuda.is_available() else None
                out.record_stream(s) if torch.cuda.is_available() else None; done = True
            """,
        ),
        Example(
            "two events, and a loop variable with the name of one",
            before="""
                import torch


                def measure():
                    start = torch.cuda.Event(enable_timing=True)
                    end = torch.cuda.Event(enable_timing=True)
                    start.record(), end.record()
                    return start.elapsed_time(end)


                def every_other(xs):
                    for start in range(0, len(xs), 2):
                        yield xs[start]
            """,
            after="""
                import torch


                def measure():
                    if torch.cuda.is_available():
                        start = torch.cuda.Event(enable_timing=True)
                        end = torch.cuda.Event(enable_timing=True)
                    start.record() if torch.cuda.is_available() else None, end.record() if torch.cuda.is_available() else None
                    return start.elapsed_time(end) if torch.cuda.is_available() else float("nan")


                def every_other(xs):
                    for start in range(0, len(xs), 2):
                        yield xs[start]
            """,
        ),
        Example(
            "two events of which one is stored, so that neither changes",
            before="""
                import torch

                start, end = torch.cuda.Event(True), torch.cuda.Event(True)
                events = {"start": start}
                end.record()
                print(start.elapsed_time(end))
            """,
        ),
        Example(
            "a time that is compared, and another by which the program also divides",
            before="""
                import torch

                start, end = torch.cuda.Event(True), torch.cuda.Event(True)
                start.record()
                end.record()
                seconds = start.elapsed_time(end) / 1000
                assert int(seconds) < 9
                first, last = torch.cuda.Event(True), torch.cuda.Event(True)
                time = first.elapsed_time(last)
                if time > 0:
                    print(1000 / time)
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    start, end = torch.cuda.Event(True), torch.cuda.Event(True)
                    start.record()
                    end.record()
                seconds = start.elapsed_time(end) / 1000 if torch.cuda.is_available() else 0.0
                assert int(seconds) < 9
                first, last = torch.cuda.Event(True), torch.cuda.Event(True)
                time = first.elapsed_time(last)
                if time > 0:
                    print(1000 / time)
            """,
        ),
        Example(
            "times that are kept, or printed with other values",
            before="""
                import torch


                def run(f, n):
                    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    start.record()
                    loss = f()
                    end.record()
                    torch.cuda.synchronize()
                    print(loss, start.elapsed_time(end))
                    passed = start.elapsed_time(end) / 1000
                    print(passed)
                    print(n / passed)
                    return passed
            """,
            after="""
                import torch


                def run(f, n):
                    if torch.cuda.is_available():
                        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                        start.record()
                    loss = f()
                    if torch.cuda.is_available():
                        end.record()
                        torch.cuda.synchronize()
                    print(loss, start.elapsed_time(end) if torch.cuda.is_available() else float("nan"))
                    passed = start.elapsed_time(end) / 1000 if torch.cuda.is_available() else float("nan")
                    print(passed)
                    print(n / passed)
                    return passed
            """,
        ),
        Example(
            "times that are added, and kept",
            before="""
                import torch


                def run(f, report):
                    total, limit = 0, 1000
                    for _ in range(9):
                        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                        start.record()
                        f()
                        end.record()
                        torch.cuda.synchronize()
                        total += start.elapsed_time(end)
                        limit -= start.elapsed_time(end) / 1000
                    report([total], limit > 0)
            """,
            after="""
                import torch


                def run(f, report):
                    total, limit = 0, 1000
                    for _ in range(9):
                        if torch.cuda.is_available():
                            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                            start.record()
                        f()
                        if torch.cuda.is_available():
                            end.record()
                            torch.cuda.synchronize()
                            total += start.elapsed_time(end)
                            limit -= start.elapsed_time(end) / 1000
                    report([total], limit > 0)
            """,
        ),
        Example(
            "an event that something asks for, and one that is made again",
            before="""
                import torch


                def run(f):
                    start = torch.cuda.Event(enable_timing=True)
                    end = torch.cuda.Event(enable_timing=True)
                    end = torch.cuda.Event(enable_timing=True)
                    start.record()
                    f()
                    if start is not None:
                        end.record()
            """,
            after="""
                import torch


                def run(f):
                    start = torch.cuda.Event(enable_timing=True) if torch.cuda.is_available() else None
                    end = torch.cuda.Event(enable_timing=True) if torch.cuda.is_available() else None
                    end = torch.cuda.Event(enable_timing=True) if torch.cuda.is_available() else None
                    if torch.cuda.is_available():
                        start.record()
                    f()
                    if start is not None and torch.cuda.is_available():
                        end.record()
            """,
        ),
        Example(
            "an event of a stream, and its query",
            before="""
                import torch

                stream = torch.cuda.Stream()
                event = stream.record_event()
                while not event.query():
                    wait()
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    stream = torch.cuda.Stream()
                    event = stream.record_event()
                while not (event.query() if torch.cuda.is_available() else True):
                    wait()
            """,
        ),
        Example(
            "a stream that another class does not share, and a check for None",
            before="""
                import torch


                class Prefetcher:
                    def __init__(self, ahead):
                        self.stream = torch.cuda.Stream() if ahead else None

                    def wait(self):
                        if self.stream is not None:
                            self.stream.synchronize()


                class Reader:
                    def __init__(self, path):
                        self.stream = open(path)

                    def read(self):
                        return parse(self.stream)
            """,
            after="""
                import torch


                class Prefetcher:
                    def __init__(self, ahead):
                        self.stream = torch.cuda.Stream() if ahead and torch.cuda.is_available() else None

                    def wait(self):
                        if self.stream is not None:
                            self.stream.synchronize()


                class Reader:
                    def __init__(self, path):
                        self.stream = open(path)

                    def read(self):
                        return parse(self.stream)
            """,
        ),
        Example(
            "a stream that exists only with CUDA, but is used without it",
            before="""
                import torch

                stream = torch.cuda.Stream() if torch.cuda.is_available() else None
                stream.synchronize()
            """,
            after="""
                import torch

                stream = torch.cuda.Stream() if torch.cuda.is_available() else None
                if torch.cuda.is_available():
                    stream.synchronize()
            """,
        ),
        Example(
            "an event of CUDA or of threads under one name",
            before="""
                import threading
                import torch

                done = torch.cuda.Event()
                if threads:
                    done = threading.Event()
                done.wait()
            """,
        ),
        Example(
            "a stream that must exist",
            before="""
                import torch

                stream = torch.cuda.Stream()
                assert stream is not None
            """,
        ),
        Example(
            "a stream that something else records",
            before="""
                import torch

                stream = torch.cuda.Stream()
                history.record(stream)
            """,
        ),
        Example(
            "a stream that a function returns",
            before="""
                import torch


                def make():
                    return torch.cuda.Stream()


                make().synchronize()
            """,
        ),
    )
    VALID = (
        Example(
            "a choice by availability",
            """
                import torch

                stream = torch.cuda.Stream() if torch.cuda.is_available() else None
            """,
        ),
        Example(
            "a stream that is passed in",
            """
                import torch


                def run(stream):
                    with torch.cuda.stream(stream):
                        pass
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._streams = Streams(context)

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if self._streams.is_maker(node):
            if self.facts.is_guarded(node) or self.facts.bindings(node.func):
                return  # a variable: the reference is where it gets its value
            fix = self._streams.of_maker(node)
            name = self.facts.resolve(node.func)
            advice = self._advice_to_call(node, node) if fix else "use it only if CUDA is available"
            yield self.finding(node, f"`{name}` needs CUDA; {advice}", fix, unless=_LEFT)
        elif self._streams.is_method(node) and not self.facts.is_guarded(node):
            fix = self._streams.of_method(node)
            if fix is not None:
                wanted = self._wanted_at(node)
                problem = f"without {wanted}, this stream or event does not exist"
                yield self.finding(node, f"{problem}; put the code under a check for {wanted}", fix)
