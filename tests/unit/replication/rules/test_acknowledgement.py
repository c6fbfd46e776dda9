"""REP-3: a producer hears of success only when every in-sync replica has its batch."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.replication.rules.replica import Acknowledgement, decide_acknowledgement


def decide(*, leads=True, high_watermark=10, end=10, isr=2, min_in_sync=2):
    return decide_acknowledgement(
        leads_epoch=leads,
        high_watermark=high_watermark,
        end_offset=end,
        smallest_isr_size=isr,
        min_in_sync=min_in_sync,
    )


def test_a_committed_batch_is_acknowledged():
    assert decide() is Acknowledgement.COMMITTED


def test_a_batch_that_not_all_have_is_pending_however_small_the_set():
    assert decide(high_watermark=9) is Acknowledgement.PENDING
    assert decide(high_watermark=9, isr=1) is Acknowledgement.PENDING


def test_a_batch_that_too_few_have_is_no_success():
    assert decide(isr=1) is Acknowledgement.TOO_FEW


def test_after_the_epoch_nothing_is_promised():
    assert decide(leads=False) is Acknowledgement.LEADER_CHANGED
    assert decide(leads=False, high_watermark=9) is Acknowledgement.LEADER_CHANGED


numbers = st.integers(0, 5)


@given(st.booleans(), numbers, numbers, numbers, numbers)
def test_success_needs_everything_at_once(leads, high_watermark, end, isr, min_in_sync):
    said = decide(
        leads=leads, high_watermark=high_watermark, end=end, isr=isr, min_in_sync=min_in_sync
    )
    is_success = leads and high_watermark >= end and isr >= min_in_sync
    assert (said is Acknowledgement.COMMITTED) == is_success
