"""A score table becomes a policy and a report; nothing here knows a model or HTTP."""
