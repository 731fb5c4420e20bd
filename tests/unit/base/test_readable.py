"""Waits for descriptors, also of a process with very many."""

import fcntl
import os
import resource

from hostelry.base.system import readable


def test_a_descriptor_with_a_large_number_is_waited_for() -> None:
    most, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(most, 4096), limit), limit))
    first, second = os.pipe()
    large = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, 2000)
    try:
        assert readable(large, within_s=0.0) == []
        os.write(second, b"x")
        assert readable(large, second, within_s=None) == [large]
        os.read(large, 1)
        os.close(second)
        assert readable(large, within_s=None) == [large], "at its end"
    finally:
        os.close(large)
        os.close(first)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, limit))
