//! What kube does not give: list and watch, credentials, discovery, throttling.
