-- wrk script: one body from a file, with its headers; prints one JSON line at the end.
-- BODY: path of the body; HEADERS: "name: value" lines.
local file = assert(io.open(os.getenv("BODY"), "rb"))
wrk.method = "POST"
wrk.body = file:read("*a")
file:close()
for line in string.gmatch(os.getenv("HEADERS") or "", "[^\n]+") do
  local name, value = string.match(line, "^([^:]+):%s*(.*)$")
  wrk.headers[name] = value
end

function done(summary, latency, requests)
  local e = summary.errors
  print(string.format(
    '{"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p99_ms": %.4f, "max_ms": %.4f, "errors": %d, "not_2xx": %d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3, e.connect + e.read + e.write + e.timeout, e.status))
end
