"""The catalog service: the use cases over HTTP. The command line imports this package, and runs it as a process.

process      uvicorn: `run` and `serving`            listening    a service's settings and its socket
app          the FastAPI application                 routes, view_routes  its paths: tables; views and names
answering    runs a request in a lane and answers    lanes        threads for requests, bounded by kind
refusals     errors as HTTP answers                  documented_errors  the same in the OpenAPI document
bodies       bounds of requests' bodies              heads        bounds of requests' headers
connections  bounds of connections                   accepting    accepts connections within the bounds
head_requests  answers HEAD, and which methods there are
security     the token, and who may do without       guard        checks the token of each request
metrics      metrics and access log of requests      stopping     ends running requests at a stop
"""

from catalog_service.server.listening import DEFAULT_HOST, DEFAULT_PORT, Settings
from catalog_service.server.metrics import REQUEST_METRICS
from catalog_service.server.process import run, serving
from catalog_service.use_cases.broker_policy import BrokerPolicy

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "REQUEST_METRICS", "BrokerPolicy", "Settings", "run", "serving"]
