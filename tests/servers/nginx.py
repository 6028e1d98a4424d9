"""Debian's nginx as a reverse proxy before the service, with the settings of ingress controllers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .install import ensure_command
from .process import HOST, Server, accepts_connections, free_port, running

CONFIGURATION = """
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream upstream_balancer {{ server {service}; }}
  server {{
    listen 127.0.0.1:{port};
    client_max_body_size 16m;
    location /v1/ {{ proxy_pass http://upstream_balancer; }}
    location /rewritten/ {{ rewrite ^/rewritten/(.*)$ /$1 break; proxy_pass http://upstream_balancer; }}
    location /outer/tables/ {{ proxy_pass http://upstream_balancer; }}
    location /removed/ {{
      rewrite ^/removed/(.*)$ /$1 break;
      proxy_set_header X-Forwarded-Prefix /removed;
      proxy_pass http://upstream_balancer;
    }}
    location /compressed/ {{
      gzip on; gzip_types application/json; gzip_min_length 1; gzip_proxied any;
      proxy_pass http://upstream_balancer/;
    }}
  }}
  server {{
    listen 127.0.0.1:{decoding_port};
    client_max_body_size 16m;
    gzip on; gzip_types application/json; gzip_min_length 1; gzip_proxied any;
    location / {{ rewrite ^(.*)$ $1 break; proxy_pass http://upstream_balancer; }}
  }}
}}
"""


@contextmanager
def nginx(folder: Path, service_url: str) -> Iterator[str]:
    """Run nginx before the service. It passes `/v1` unchanged, and decodes and removes other prefixes."""
    with _running(folder, service_url) as (port, _):
        yield f"http://{HOST}:{port}"


@contextmanager
def decoding_nginx(folder: Path, service_url: str) -> Iterator[str]:
    """Run nginx before the service. It decodes and normalizes all paths, and compresses all responses."""
    with _running(folder, service_url) as (_, port):
        yield f"http://{HOST}:{port}"


@contextmanager
def _running(folder: Path, service_url: str) -> Iterator[tuple[int, int]]:
    port, decoding_port, file = free_port(), free_port(), folder / "nginx.conf"
    place = service_url.removeprefix("http://")
    file.write_text(CONFIGURATION.format(folder=folder, port=port, decoding_port=decoding_port, service=place))
    command = [str(ensure_command("nginx", "nginx-light", places="/usr/sbin")), "-c", str(file), "-p", str(folder)]
    with running(Server("nginx", command, lambda: accepts_connections(decoding_port)), folder):
        yield port, decoding_port
