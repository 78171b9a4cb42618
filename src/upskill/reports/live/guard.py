"""Who may read the live page: whoever has its address, from this machine's own browser, and nobody else's page.

The address has a random token as its first part. A page of another site that gets a browser to send requests here, by a
link, a form, a script or a name that it points at 127.0.0.1 (DNS rebinding), does not know it; and such requests are
refused by their `Host`, `Origin` and `Sec-Fetch-Site` before it is even looked at.
"""

from __future__ import annotations

import hmac
import logging
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from upskill.errors import UpskillError, UsageError

logger = logging.getLogger(__name__)
LOOPBACK = ("127.0.0.1", "localhost")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "upskill",
}


def make_guard(token: str) -> Middleware:
    """A middleware that refuses what is not ours, and adds the headers of a page that trusts nobody."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = _refusal(request, token)
        if refusal:
            return web.Response(status=403, text=refusal, headers=HEADERS)
        try:
            response = await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        except UpskillError as error:
            return web.Response(status=_status(error), text=_words(error), headers=HEADERS)
        except Exception:
            logger.exception("a bug in the live page: %s", request.path.partition("/api/")[2])
            return web.Response(status=500, text="This is a bug in upskill; its log has more.\n", headers=HEADERS)
        if not response.prepared:  # a stream sends its headers itself
            response.headers.update(HEADERS)
        return response

    return guard


def _status(error: UpskillError) -> int:
    """What is wrong with the question, and what with the store."""
    return 400 if isinstance(error, UsageError) else 503


def _words(error: UpskillError) -> str:
    said = error.message if error.message.endswith((".", "!", "?")) else f"{error.message}."
    return f"{said} {error.hint}".strip() + "\n"


def _refusal(request: web.Request, token: str) -> str:
    if not _is_loopback(request.host):
        return "upskill view answers under 127.0.0.1 and localhost only.\n"
    origin, site = request.headers.get(hdrs.ORIGIN), request.headers.get("Sec-Fetch-Site", "same-origin")
    own = f"http://{request.host}"
    # A link from elsewhere may open a page; everything else has to come from our own pages.
    opens_a_page = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    if (origin is not None and origin != own) or (site not in ("same-origin", "none") and not opens_a_page):
        return "This request comes from the page of another site.\n"
    if request.method not in ("GET", "HEAD") and origin != own:
        return "What changes anything has to say where it comes from (Origin).\n"
    given = request.path.split("/")[1]
    if not hmac.compare_digest(given.encode(errors="replace"), token.encode()):
        return "Open the whole address that `upskill view` printed: it has a token in it.\n"
    return ""


def _is_loopback(host: str) -> bool:
    try:
        parts = urlsplit(f"//{host}")
        # Any port: one that is forwarded from another machine has a number of its own.
        return parts.hostname in LOOPBACK and parts.netloc == host and parts.username is None and (parts.port or 80) > 0
    except ValueError:
        return False
