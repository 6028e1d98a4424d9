// Shows errors that htmx does not display: rejected requests, failures and lost connections.
"use strict";
(() => {
  const lost = "Connection lost";
  const show = (text) => {
    const place = document.getElementById("trouble");
    if (place.textContent !== text) place.textContent = text;
    place.hidden = !text;
  };
  const detail = (answer) => {
    try {
      const problem = JSON.parse(answer.responseText);
      return `${problem.detail} (${problem.code})`;
    } catch {
      return `status ${answer.status}`;
    }
  };
  document.addEventListener("htmx:responseError", (event) => show(`Request failed: ${detail(event.detail.xhr)}.`));
  document.addEventListener("htmx:sendError", () => show(`${lost}: the page shows old data.`));
  document.addEventListener("htmx:timeout", () => show(`${lost}, the request timed out: the page shows old data.`));
  document.addEventListener("htmx:afterOnLoad", (event) => {
    const live = event.detail.elt.id === "live";
    const wasLost = document.getElementById("trouble").textContent.startsWith(lost);
    if (event.detail.successful !== false && event.detail.xhr.status < 400 && (!live || wasLost)) show("");
  });
})();
