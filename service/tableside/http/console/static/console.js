// What htmx keeps to itself: that the service refused, failed, or does not answer.
"use strict";
(() => {
  const tell = (text) => {
    const place = document.getElementById("trouble");
    if (place.textContent !== text) place.textContent = text;
    place.hidden = !text;
  };
  const detail = (answer) => {
    try {
      const problem = JSON.parse(answer.responseText);
      return `${problem.detail} (${problem.code})`;
    } catch {
      return `it answered ${answer.status}`;
    }
  };
  document.addEventListener("htmx:responseError", (event) => tell(`This was not done: ${detail(event.detail.xhr)}.`));
  document.addEventListener("htmx:sendError", () => tell("The service does not answer: what you see is old."));
  document.addEventListener("htmx:timeout", () => tell("The service does not answer in time: what you see is old."));
  document.addEventListener("htmx:afterOnLoad", (event) => {
    const live = event.detail.elt.id === "live";
    const old = document.getElementById("trouble").textContent.startsWith("The service");
    if (event.detail.successful !== false && event.detail.xhr.status < 400 && (!live || old)) tell("");
  });
})();
