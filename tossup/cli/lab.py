"""`tossup lab`: the group scorer as a page, written to a file or served to this machine alone."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import rich_click as click

from tossup.cli.console import console, out
from tossup.records import TossupError

LOOPBACK = "127.0.0.1"


@click.command()
@click.option(
    "--pool", type=click.Path(path_type=Path), help="Lay the success rates of this measured pool under the curves."
)
@click.option(
    "--out", "page", type=click.Path(path_type=Path), metavar="PAGE.html", help="Write the page instead of serving it."
)
@click.option("--port", default=0, show_default="a free one", type=click.IntRange(0, 65535), help="Port to serve on.")
@click.option("--no-browser", is_flag=True, help="Serve without opening a browser.")
def command(pool: Path | None, page: Path | None, port: int, no_browser: bool) -> None:
    """Score a group of answers by hand: the mean as par, the advantage of each answer, and when a group teaches nothing.

    Without --out the page is served on 127.0.0.1 and opened; Ctrl-C ends it.

    \b
    tossup lab
    tossup lab --pool pool.parquet
    tossup lab --pool pool.parquet --out lab.html
    """
    from tossup.curriculum.report import lab
    from tossup.curriculum.report.page import save

    with console.status("making the page"):
        html = lab.html(pool)
    if page is not None:
        save(html, page)
        out.print(f"wrote {page}", soft_wrap=True, markup=False)
        return
    serve(html, port, browse=not no_browser)


def serve(html: str, port: int, *, browse: bool) -> None:
    """Serve the page on loopback until Ctrl-C, which is the ordinary end.

    Raises:
        TossupError: the port is taken.
    """
    try:
        server = server_of(html, port)
    except OSError as e:
        raise TossupError(f"port {port} on {LOOPBACK} cannot be served ({e.strerror}); choose another --port") from e
    with server:
        url = f"http://{LOOPBACK}:{server.server_port}/"
        out.print(f"{url}   (Ctrl-C ends it)")
        if browse:
            import webbrowser

            webbrowser.open(url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.print("ended")


def server_of(html: str, port: int) -> ThreadingHTTPServer:
    """A server on loopback that knows this one page."""
    body = html.encode()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.split("?")[0] != "/":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing: the terminal shows the address and nothing else."""

    return ThreadingHTTPServer((LOOPBACK, port), Page)
