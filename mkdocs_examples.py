"""For the site only: gives examples in short docstrings the heading that the parser looks for."""

import griffe

HEADING = "Examples\n--------\n"


class Examples(griffe.Extension):
    """Puts ``Examples`` before the first ``>>>`` of a docstring that has no such section."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Change the text that is parsed later; the source stays as it is."""
        docstring = obj.docstring
        if docstring is None or ">>> " not in docstring.value or HEADING in docstring.value:
            return
        before, after = docstring.value.split(">>> ", 1)
        docstring.value = f"{before}{HEADING}>>> {after}"
