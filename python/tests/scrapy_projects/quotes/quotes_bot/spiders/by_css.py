import scrapy


class ByCss(scrapy.Spider):
    name = "by-css"

    def __init__(self, site, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [f"{site}quotes/"]

    def parse(self, response):
        for quote in response.css("div.quote"):
            yield {
                "text": quote.css("span.text::text").get(),
                "author": quote.css("small.author::text").get(),
                "tags": quote.css("div.tags > a.tag::text").getall(),
            }
        next_page = response.css("li.next > a::attr(href)").get()
        if next_page is not None:
            yield scrapy.Request(response.urljoin(next_page))
