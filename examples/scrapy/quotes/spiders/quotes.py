import scrapy

from quotes.items import Quote


class QuotesSpider(scrapy.Spider):
    """Quotes by page, each with the day of birth from the page of its author. The item goes along with the request."""

    name = "quotes"

    def __init__(self, url="http://127.0.0.1:8000/", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [url]

    def parse(self, response):
        for quote in response.css("div.quote"):
            item = Quote(
                text=quote.css("span.text::text").get(),
                author=quote.css("small.author::text").get(),
                tags=quote.css("a.tag::text").getall(),
            )
            # Each quote needs its author, who may have been seen.
            about = quote.css("span a::attr(href)").get()
            yield response.follow(about, self.parse_author, cb_kwargs={"item": item}, dont_filter=True)
        yield from response.follow_all(css="li.next a")

    def parse_author(self, response, item):
        item["born"] = response.css("span.author-born-date::text").get()
        yield item
