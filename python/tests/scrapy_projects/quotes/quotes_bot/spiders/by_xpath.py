import scrapy


class ByXPath(scrapy.Spider):
    name = "by-xpath"

    def __init__(self, site, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [f"{site}quotes/"]

    def parse(self, response):
        for quote in response.xpath('//div[@class="quote"]'):
            yield {
                "text": quote.xpath('./span[@class="text"]/text()').get(),
                "author": quote.xpath('.//small[@class="author"]/text()').get(),
                "tags": quote.xpath('.//div[@class="tags"]/a[@class="tag"]/text()').getall(),
            }
        next_page = response.xpath('//li[@class="next"]/a/@href').get()
        if next_page is not None:
            yield scrapy.Request(response.urljoin(next_page))
