"""Ctrl-C while a run is made."""

import os
import signal
import weakref

import pytest

from recollect.runs.interrupts import asked_to_stop, remembered


class Something:
    pass


def press(_: object = None) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_before_the_loop_it_is_an_exception():
    with pytest.raises(KeyboardInterrupt), remembered():
        press()


def test_in_the_loop_it_is_a_request():
    with remembered(), asked_to_stop() as is_stopped:
        assert not is_stopped()
        press()
        assert is_stopped()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_python_drops_stops_the_loop():
    with remembered():
        thing = Something()
        watch = weakref.ref(thing, press)
        del thing  # the exception is raised in the callback, and ignored
        assert watch() is None
        with asked_to_stop() as is_stopped:
            assert is_stopped()


def test_the_handler_from_before_is_back():
    before = signal.getsignal(signal.SIGINT)
    with remembered(), asked_to_stop():
        pass
    assert signal.getsignal(signal.SIGINT) is before
