from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class AuthorsSpider(CrawlSpider):
    """Each author once, found by rules."""

    name = "authors"
    rules = (
        Rule(LinkExtractor(restrict_css="li.next")),
        Rule(LinkExtractor(allow=r"/author/"), callback="parse_author"),
    )

    def __init__(self, url="http://127.0.0.1:8000/", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [url]

    def parse_author(self, response):
        yield {
            "author": response.css("h3.author-title::text").get(),
            "born": response.css("span.author-born-date::text").get(),
        }
