"""Names of hosts and users in texts and pages."""

import pytest

from dlperf_slurm.reports.redaction import Redaction

REDACTION = Redaction(["node07.example.org", "node12", "localhost"], ["ada", "root", "a.b"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rank 1 on node07.example.org: x", "rank 1 on host-1: x"),
        ("node12, node07", "host-2, host-1"),
        ("nodes node[07-09,12] failed", "nodes hosts failed"),
        ("/home/ada/results by root", "/home/user/results by root"),
        ("node070 node07b adapter localhost", "node070 node07b adapter localhost"),
        ("a.b axb", "user axb"),
    ],
)
def test_names_are_replaced_as_whole_words(text, expected):
    assert REDACTION.clean(text) == expected


def test_targets_of_links_in_markdown_stay():
    text = "[node12](ada/node12.md) [\\](node12)"
    cleaned = REDACTION.clean_files({"a.md": text, "a.csv": text})
    assert cleaned["a.md"] == "[host-2](ada/node12.md) [\\](host-2)"
    assert "ada/" not in cleaned["a.csv"]


def test_style_script_and_tags_of_a_page_stay():
    page = '<style>.ada{}</style><p class="ada" title="by ada">ada</p><script>ada()</script>'
    assert REDACTION.clean_page(page) == page.replace('by ada">ada<', 'by user">user<')
