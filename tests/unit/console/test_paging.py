"""Which rows a page has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.console.paging import PageRequest, cut_page, matches, natural_key, sort_rows


def test_a_page_is_cut_from_all() -> None:
    page = cut_page(range(60), PageRequest(page=2, rows=25))
    assert (list(page.rows), page.total, page.number) == (list(range(25, 50)), 60, 2)


def test_a_page_past_the_end_is_the_last_one() -> None:
    page = cut_page(range(30), PageRequest(page=9, rows=25))
    assert (list(page.rows), page.number) == (list(range(25, 30)), 2)


def test_nothing_has_one_empty_page() -> None:
    assert cut_page((), PageRequest(page=3)).number == 1


@given(st.integers(0, 300), st.integers(1, 50))
def test_pages_together_are_everything(total: int, size: int) -> None:
    pages = [
        cut_page(range(total), PageRequest(page=number, rows=size)).rows
        for number in range(1, -(-total // size) + 1)
    ]
    assert [row for page in pages for row in page] == list(range(total))


def test_numbers_in_names_count() -> None:
    names = ["t-10", "T-2", "t-1", "10", "9", ""]
    assert sorted(names, key=natural_key) == ["", "t-1", "T-2", "t-10", "9", "10"]


@given(st.lists(st.text()))
def test_any_names_have_an_order(names: list[str]) -> None:
    assert len(sorted(names, key=natural_key)) == len(names)


def test_a_search_is_words_in_any_order() -> None:
    assert matches("shop.Orders.v2", "v2 order")
    assert not matches("shop.orders.v2", "v3")
    assert matches("anything", "")


def test_rows_without_a_value_come_last_in_both_directions() -> None:
    rows = [3, None, 1]
    keys = {"value": lambda row: row}
    up = sort_rows(rows, keys, PageRequest(sort_by="value"))
    down = sort_rows(rows, keys, PageRequest(sort_by="value", descending=True))
    assert (up, down) == ([1, 3, None], [3, 1, None])


def test_a_column_that_cannot_be_sorted_changes_nothing() -> None:
    assert sort_rows([2, 1], {}, PageRequest(sort_by="x")) == [2, 1]
