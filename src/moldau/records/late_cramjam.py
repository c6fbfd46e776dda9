"""cramjam, which is imported with the first batch that is compressed: a start needs no codec.

It takes some two milliseconds, once, and a megabyte and a half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import cramjam as cramjam
else:

    class _LateModule:
        def __getattr__(self, name: str) -> object:
            import cramjam

            found = getattr(cramjam, name)
            setattr(self, name, found)  # so it is asked once for each name
            return found

    cramjam = _LateModule()
