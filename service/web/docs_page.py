"""The description as a page: one file, nothing fetched from elsewhere, and a policy that lets nothing else run."""

import base64
import hashlib
import re
from pathlib import Path

from service.web.router import Request, Response

_PAGE = (Path(__file__).parent / "docs.html").read_bytes()


def _source(tag: bytes) -> str:
    match = re.search(rb"<" + tag + rb">(.*?)</" + tag + rb">", _PAGE, re.DOTALL)
    assert match is not None  # the page is ours
    return "'sha256-" + base64.b64encode(hashlib.sha256(match.group(1)).digest()).decode() + "'"


_POLICY = (
    f"default-src 'none'; script-src {_source(b'script')}; style-src {_source(b'style')}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def docs_page(request: Request) -> Response:
    """The page; it reads `/docs.json` from where it came."""
    return Response(
        _PAGE,
        content_type="text/html; charset=utf-8",
        headers=((b"content-security-policy", _POLICY.encode()),),
    )
